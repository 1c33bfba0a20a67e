// Command await waits until every sample of a metric, or those whose labels match, have a value:
//
//	await --url http://127.0.0.1:9808/metrics --metric phoenixnap_agent_check --labels 'id="PN105",.*status="warn"' \
//		--value 1 --within 30s
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
)

// every is the time between two looks.
const every = 100 * time.Millisecond

func main() {
	url := flag.String("url", "", "where the metrics are served")
	metric := flag.String("metric", "", "name of the metric")
	labels := flag.String("labels", "",
		"regular expression that the labels of a sample must match, as Prometheus writes them: name=\"value\"")
	value := flag.Float64("value", 0, "value to wait for")
	within := flag.Duration("within", 30*time.Second, "how long to wait")
	flag.Parse()
	command.Main(func(ctx context.Context) error {
		pattern, err := regexp.Compile(*labels)
		if err != nil {
			return fmt.Errorf("--labels: %w", err)
		}
		ctx, cancel := context.WithTimeout(ctx, *within)
		defer cancel()
		return await(ctx, *url, sample{metric: *metric, labels: pattern, value: *value})
	})
}

// await looks again and again; its error is what the last look missed.
func await(ctx context.Context, url string, want sample) error {
	last := errors.New("nothing was read")
	if wait.PollUntilContextCancel(ctx, every, true, func(ctx context.Context) (bool, error) {
		err := look(ctx, url, want)
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	}) != nil {
		return last
	}
	return nil
}

func look(ctx context.Context, url string, want sample) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("read %s: %w", url, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("read %s: %w", url, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("read %s: %s", url, response.Status)
	}
	return want.in(response.Body)
}

// sample is what to wait for.
type sample struct {
	metric string
	labels *regexp.Regexp
	value  float64
}

// in looks for samples in the text format of Prometheus. At least one must be there, and all must have the value.
func (want sample) in(text io.Reader) error {
	found := 0
	var others []string
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		line := lines.Text()
		rest, isSample := strings.CutPrefix(line, want.metric+"{")
		labels, number, complete := strings.Cut(rest, "} ")
		if !isSample || !complete || !want.labels.MatchString(labels) {
			continue
		}
		found++
		if got, err := strconv.ParseFloat(number, 64); err != nil || got != want.value {
			others = append(others, line)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	if found == 0 {
		return fmt.Errorf("no sample of %s{%s}", want.metric, want.labels)
	}
	if len(others) > 0 {
		return fmt.Errorf("want %g, have %s", want.value, strings.Join(others, ", "))
	}
	return nil
}
