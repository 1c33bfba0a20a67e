// Command licenses writes what the programs are made of, with the texts of its licenses and where its source code is.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/licenses"
)

func main() {
	flag.Parse()
	// make calls it in the root of the source tree.
	parts, err := licenses.Parts(context.Background(), ".")
	if err == nil {
		err = licenses.Write(os.Stdout, parts)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
