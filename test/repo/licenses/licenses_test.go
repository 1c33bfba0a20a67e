package licenses

import (
	"slices"
	"strings"
	"testing"
)

// TestParts: the SDK of phoenixNAP is under the Mozilla Public License, so users learn where its source code is.
func TestParts(t *testing.T) {
	parts, err := Parts(t.Context(), "../../..")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := Write(&text, parts); err != nil {
		t.Fatal(err)
	}
	reciprocal := 0
	for _, p := range parts {
		head := "\n" + p.Path + " " + p.Version + "\nLicense: " + p.License + "\nSource: " + p.Source + "\n"
		if !strings.Contains(text.String(), head) {
			t.Errorf("%s is not in the file", p.Path)
		}
		if p.License != "MPL-2.0" {
			continue
		}
		reciprocal++
		if want := "https://pkg.go.dev/" + p.Path + "@" + p.Version; p.Source != want {
			t.Errorf("source of %s: %s, want %s", p.Path, p.Source, want)
		}
	}
	if reciprocal < 5 || !strings.Contains(text.String(), "1.10. “Modifications”") && !strings.Contains(text.String(),
		`1.10. "Modifications"`) {
		t.Errorf("%d parts under the Mozilla Public License, or not its text", reciprocal)
	}
	client := func(p Part) bool { return p.Path == "k8s.io/client-go" }
	if parts[0].Path != Standard || !slices.ContainsFunc(parts, client) {
		t.Error("Go's standard library or k8s.io/client-go is missing")
	}
	if strings.Count(text.String(), "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION") > 20 {
		t.Error("the same text is in the file many times")
	}
}

func TestIdentify(t *testing.T) {
	const redistribution = "Redistribution and use in source\nand binary forms, with or without modification, "
	for text, want := range map[string]string{
		"Apache License\n  Version 2.0, January 2004": "Apache-2.0",
		"Mozilla Public License Version 2.0":          "MPL-2.0",
		redistribution:                                "BSD-2-Clause",
		redistribution + "Neither the name … may be used to endorse or promote products": "BSD-3-Clause",
		"Permission is hereby granted, free of charge, … " + redistribution +
			" may be used to endorse or promote products": "MIT AND BSD-3-Clause",
		"GNU AFFERO GENERAL PUBLIC LICENSE": "",
		"":                                  "",
	} {
		if got, err := identify(text); got != want || (err != nil) != (want == "") {
			t.Errorf("identify(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
}

// TestWithoutALicense: what has none may not be used.
func TestWithoutALicense(t *testing.T) {
	if part, err := partOf(listed{Path: "example.com/a", Version: "v1.0.0", Dir: t.TempDir()}); err == nil {
		t.Errorf("it is %q", part.License)
	}
}
