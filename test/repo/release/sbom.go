package release

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// partsOf writes what a Go program is made of, as it says itself (go version -m), as a bill of materials in CycloneDX.
// The time is the sources', so that equal programs have equal bills.
func partsOf(program, version string, made time.Time, to io.Writer) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("parts of %s: %w", program, err)
	}
	encoder := cdx.NewBOMEncoder(to, cdx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.Encode(bill(info, version, made)); err != nil {
		return fmt.Errorf("parts of %s: %w", program, err)
	}
	return nil
}

// bill lists the modules of a program and the Go toolchain, whose library is a part like any other.
func bill(info *buildinfo.BuildInfo, version string, made time.Time) *cdx.BOM {
	parts := []cdx.Component{component("stdlib", info.GoVersion)}
	for _, module := range info.Deps {
		for module.Replace != nil {
			module = module.Replace
		}
		parts = append(parts, component(module.Path, module.Version))
	}
	references := make([]string, 0, len(parts))
	for _, p := range parts {
		references = append(references, p.BOMRef)
	}
	subject := component(info.Main.Path, version)
	subject.Type = cdx.ComponentTypeApplication
	subject.Name = info.Path
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: made.UTC().Format(time.RFC3339), Component: &subject}
	bom.Components = &parts
	bom.Dependencies = &[]cdx.Dependency{{Ref: subject.BOMRef, Dependencies: &references}}
	return bom
}

// component names a module by its package URL (https://github.com/package-url/purl-spec, type golang).
func component(module, version string) cdx.Component {
	url := "pkg:golang/" + module + "@" + version
	return cdx.Component{Type: cdx.ComponentTypeLibrary, BOMRef: url, Name: module, Version: version, PackageURL: url}
}
