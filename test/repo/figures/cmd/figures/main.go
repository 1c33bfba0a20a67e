// Command figures measures the repository itself, one figure a line. It is run at the root, by make figures.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/development"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/figures"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/words"
)

func main() {
	list := flag.Bool("words", false, "list the forbidden words with their places instead")
	flag.Parse()
	command.Main(func(ctx context.Context) error { return run(ctx, *list) })
}

func run(ctx context.Context, list bool) error {
	if list {
		return listWords()
	}
	if err := figures.Print(os.Stdout, "."); err != nil {
		return err
	}
	touched, err := development.Touched(ctx, ".", development.AddACheck)
	if err == nil {
		fmt.Fprintln(os.Stdout, figures.Count("new_check_files", len(touched), "files"))
	}
	return err
}

func listWords() error {
	found, err := words.Find(".")
	for _, f := range found {
		fmt.Fprintln(os.Stdout, f)
	}
	return err
}
