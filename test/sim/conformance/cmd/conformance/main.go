// Command conformance asks a real phoenixNAP account about behavior that is not documented, and reports which switches
// of the simulator (test/sim/pnapsim) that confirms. Without --buy it only reads.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/conformance"
)

func main() {
	command.Main(func(ctx context.Context) error {
		return run(ctx, os.Args[1:], os.LookupEnv, os.Stdin, os.Stdout)
	})
}

// secret are the fields of the controller's config secret that matter here.
type secret struct {
	ClientID     string `json:"clientID"`
	ClientSecret string `json:"clientSecret"`
	Location     string `json:"location"`
	BaseURL      string `json:"base-url"`
	TokenURL     string `json:"token-url"`
}

// credentials reads the config secret, and what the environment says otherwise, as the controller does.
func credentials(path string, lookUp func(string) (string, bool)) (secret, error) {
	var s secret
	if path != "" {
		raw, err := os.ReadFile(path)
		if err != nil {
			return s, err
		}
		if err := json.Unmarshal(raw, &s); err != nil {
			// an error of the decoder may show what stands there
			return s, fmt.Errorf("%s is not JSON as phoenixNAP's config secret has it", path)
		}
	}
	for name, field := range map[string]*string{
		"PNAP_CLIENT_ID": &s.ClientID, "PNAP_CLIENT_SECRET": &s.ClientSecret, "PNAP_LOCATION": &s.Location,
		"PNAP_BASE_URL": &s.BaseURL, "PNAP_TOKEN_URL": &s.TokenURL,
	} {
		if value, set := lookUp(name); set && value != "" {
			*field = value
		}
	}
	if s.ClientID == "" || s.ClientSecret == "" {
		return s,
			errors.New("no credentials: name the controller's config secret with --cloud-config, or set " +
				"PNAP_CLIENT_ID and PNAP_CLIENT_SECRET")
	}
	if s.TokenURL == "" && s.BaseURL != "" {
		s.TokenURL = strings.TrimSuffix(s.BaseURL, "/") + pnap.TokenPath
	}
	s.BaseURL, s.TokenURL = cmp.Or(s.BaseURL, pnap.DefaultBaseURL), cmp.Or(s.TokenURL, pnap.DefaultTokenURL)
	return s, nil
}

func run(ctx context.Context, args []string, lookUp func(string) (string, bool), in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	config := flags.String("cloud-config", "", "file of the controller's config secret, such as cloud-sa.json")
	buy := flags.Bool("buy", false,
		"buy the smallest IP block for some minutes, after a confirmation, and give it back")
	cleanUp := flags.Bool("clean-up", false, "only give back what a survey left that was killed")
	yes := flags.Bool("yes", false, "take the confirmation for given")
	var options conformance.Options
	flags.StringVar(&options.Location, "location", "",
		"location in which to buy, such as ASH; else that of the config secret")
	flags.StringVar(&options.Server, "server", "",
		"with --buy: ID of a server that may be joined to a network of the survey for some minutes")
	flags.StringVar(&options.FullNetwork, "full-network", "",
		"with --buy: ID of a public network that holds ten IPv4 blocks, to which an eleventh is offered")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown word %q: only flags are accepted", flags.Arg(0))
	}
	s, err := credentials(*config, lookUp)
	if err != nil {
		return err
	}
	options.Location = cmp.Or(options.Location, s.Location)
	if *buy && options.Location == "" {
		return errors.New("--buy needs --location")
	}
	options.Say = func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	options.Confirm = func(offer string) bool { return *yes || confirmed(in, out, offer) }
	account := &conformance.Account{BaseURL: s.BaseURL, TokenURL: s.TokenURL, ClientID: s.ClientID,
		ClientSecret: s.ClientSecret}
	survey := conformance.New(account, options)
	if *cleanUp {
		return survey.CleanUp(ctx)
	}
	return ask(ctx, survey, *buy, out)
}

// ask reads, buys where it is allowed to, and reports what is known, also after a failure.
func ask(ctx context.Context, survey *conformance.Survey, buy bool, out io.Writer) error {
	err := survey.Read(ctx)
	if err == nil && buy {
		err = survey.Buy(ctx)
	}
	return errors.Join(err, conformance.Write(out, survey.Findings()))
}

// confirmed asks a person; anything but yes is no.
func confirmed(in io.Reader, out io.Writer, offer string) bool {
	_, _ = fmt.Fprintf(out, "This buys %s.\nType yes to buy it: ", offer)
	line, err := bufio.NewReader(in).ReadString('\n')
	return (err == nil || errors.Is(err, io.EOF)) && strings.TrimSpace(line) == "yes"
}
