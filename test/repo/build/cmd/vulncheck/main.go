// Command vulncheck searches the shipped programs for known vulnerabilities that their code can reach (govulncheck). If
// the vulnerability database cannot be reached, it says so in one line and succeeds.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// patience is how long the database may take to answer.
const patience = 15 * time.Second

func main() {
	database := flag.String("db", "https://vuln.go.dev", "the URL of the vulnerability database, or of a copy of it")
	flag.Parse()
	command.Main(func(ctx context.Context) error { return run(ctx, *database, os.Stdout, govulncheck) })
}

// run searches with the database, if it can be reached.
func run(ctx context.Context, database string, out io.Writer, search func(context.Context, string) error) error {
	if err := reach(ctx, database); err != nil {
		_, err = fmt.Fprintf(out, "govulncheck was NOT run: its database %s cannot be reached: %v\n", database, err)
		return err
	}
	return search(ctx, database)
}

// reach asks the database when it changed last (https://go.dev/doc/security/vuln/database).
func reach(ctx context.Context, database string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, database+"/index/db.json", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", response.Status)
	}
	return nil
}

// govulncheck fails if a program that we ship calls a function with a known vulnerability.
func govulncheck(ctx context.Context, database string) error {
	root, err := tools.ModuleRoot()
	if err != nil {
		return err
	}
	search := exec.CommandContext(ctx, "go", "tool", "-modfile=test/env/tools/dev/go.mod", "govulncheck",
		"-db", database, "./agent/...", "./controller/...", "./pkg/...")
	search.Dir = root
	search.Stdout = os.Stdout
	search.Stderr = os.Stderr
	return search.Run()
}
