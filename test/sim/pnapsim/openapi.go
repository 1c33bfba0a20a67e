package pnapsim

import (
	"embed"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// api is one of the APIs that the simulator serves.
type api struct {
	name   string // file name of its document in a directory, without .yaml
	prefix string // of its paths
	module string // SDK module that ships its document
	read   string // scope that reads
	write  string // scope that writes
}

const sdk = "github.com/phoenixnap/go-sdk-bmc/"

var (
	bmcAPI      = api{"bmcapi", "/bmc/v1", sdk + "bmcapi/v3", "bmc.read", "bmc"}
	ipAPI       = api{"ipapi", "/ips/v1", sdk + "ipapi/v3", "bmc.read", "bmc"}
	networkAPI  = api{"networkapi", "/networks/v1", sdk + "networkapi/v4", "bmc.read", "bmc"}
	tagAPI      = api{"tagapi", "/tag-manager/v1", sdk + "tagapi/v3", "tags.read", "tags"}
	locationAPI = api{"locationapi", "/location-api/v1", sdk + "locationapi/v4", "", ""}
)

func apis() []api { return []api{bmcAPI, ipAPI, networkAPI, tagAPI, locationAPI} }

// Specs are the OpenAPI documents that ship in the SDK modules. They are safe for concurrent use.
type Specs struct {
	documents map[string]*openapi3.T // by API name
}

// copies are the documents of the SDK modules. The program carries them, for where it runs there need be neither the
// source tree nor the go command.
//
//go:embed openapi/*.yaml
var copies embed.FS

// LoadSpecs reads the documents from dir, as bmcapi.yaml, ipapi.yaml, networkapi.yaml, tagapi.yaml and
// locationapi.yaml; with an empty dir it takes those of the SDK modules, which the program carries.
func LoadSpecs(dir string) (*Specs, error) {
	specs := &Specs{documents: map[string]*openapi3.T{}}
	for _, a := range apis() {
		raw, err := readDocument(dir, a.name+".yaml")
		if err != nil {
			return nil, fmt.Errorf("read an OpenAPI document: %w", err)
		}
		document, err := openapi3.NewLoader().LoadFromData(raw)
		if err != nil {
			return nil, fmt.Errorf("OpenAPI document %s.yaml: %w", a.name, err)
		}
		specs.documents[a.name] = document
	}
	return specs, nil
}

func readDocument(dir, name string) ([]byte, error) {
	if dir == "" {
		return copies.ReadFile("openapi/" + name)
	}
	return os.ReadFile(filepath.Join(dir, name))
}

// operation finds an operation in a document.
func (s *Specs) operation(op *operation) (*openapi3.T, *openapi3.PathItem, *openapi3.Operation) {
	document := s.documents[op.api.name]
	item := document.Paths.Value(op.path)
	if item == nil {
		return document, nil, nil
	}
	return document, item, item.GetOperation(op.method)
}

// checkRequest lists how a request differs from the document: unknown or malformed parameters, a body
// that is missing or does not fit. It also lists the unknown properties of the body apart.
func (s *Specs) checkRequest(op *operation, r *http.Request, params map[string]string, body any, hasBody bool) (faults,
	unknown []string) {
	document, item, spec := s.operation(op)
	if spec == nil {
		return []string{op.name() + " is not in the OpenAPI document"}, nil
	}
	faults = checkParameters(r, params, routers.Route{Spec: document, Path: op.path, PathItem: item, Method: op.method,
		Operation: spec})
	if spec.RequestBody == nil {
		if hasBody {
			faults = append(faults, "body: this operation has none")
		}
		return faults, nil
	}
	if body == nil && !spec.RequestBody.Value.Required {
		return faults, nil // "null" is what the SDK sends for a body that was not set
	}
	media := spec.RequestBody.Value.Content.Get("application/json")
	switch {
	case !hasBody && spec.RequestBody.Value.Required:
		return append(faults, "body: required"), nil
	case !hasBody || media == nil || media.Schema == nil:
		return faults, nil
	}
	if kind := r.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
		faults = append(faults, fmt.Sprintf("Content-Type: want application/json, not %q", kind))
	}
	err := media.Schema.Value.VisitJSON(body, append(schemaOptions(), openapi3.VisitAsRequest())...)
	return append(faults, schemaFaults("body", err)...), unknownProperties(media.Schema.Value, body)
}

func schemaOptions() []openapi3.SchemaValidationOption {
	return []openapi3.SchemaValidationOption{
		openapi3.MultiErrors(), openapi3.EnableFormatValidation(), openapi3.SetSchemaRegexCompiler(compilePattern),
	}
}

func checkParameters(r *http.Request, params map[string]string, route routers.Route) []string {
	input := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: params, QueryParams: r.URL.Query(), Route: &route,
		Options: &openapi3filter.Options{SkipSettingDefaults: true},
	}
	var faults []string
	known := []string{}
	for _, list := range []openapi3.Parameters{route.PathItem.Parameters, route.Operation.Parameters} {
		for _, parameter := range list {
			if parameter.Value.In == openapi3.ParameterInQuery {
				known = append(known, parameter.Value.Name)
			}
			if err := openapi3filter.ValidateParameter(r.Context(), input, parameter.Value); err != nil {
				faults = append(faults, err.Error())
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(input.QueryParams)) {
		if !slices.Contains(known, name) {
			faults = append(faults, fmt.Sprintf("query parameter %q is unknown", name))
		}
	}
	return faults
}

// checkResponse lists how an answer differs from the document. A status that the document does not
// list is no fault: the real service gives such ones too.
func (s *Specs) checkResponse(op *operation, status int, body any) []string {
	_, _, spec := s.operation(op)
	if spec == nil {
		return []string{op.name() + " is not in the OpenAPI document"}
	}
	response := spec.Responses.Status(status)
	if response == nil {
		return nil
	}
	media := response.Value.Content.Get("application/json")
	switch {
	case media == nil || media.Schema == nil:
		if body != nil {
			return []string{fmt.Sprintf("response %d: the document has no body", status)}
		}
		return nil
	case body == nil:
		return []string{fmt.Sprintf("response %d: the document has a body", status)}
	}
	err := media.Schema.Value.VisitJSON(body, append(schemaOptions(), openapi3.VisitAsResponse())...)
	return schemaFaults(fmt.Sprintf("response %d", status), err)
}

// schemaFaults turns the errors of a schema into sentences without values, which could be secrets.
func schemaFaults(where string, err error) []string {
	if err == nil {
		return nil
	}
	var many openapi3.MultiError
	if errors.As(err, &many) {
		var faults []string
		for _, one := range many {
			faults = append(faults, schemaFaults(where, one)...)
		}
		return faults
	}
	var one *openapi3.SchemaError
	if !errors.As(err, &one) {
		return []string{where + ": " + err.Error()}
	}
	pointer := strings.Join(one.JSONPointer(), "/")
	if one.SchemaField == "minItems" && strings.HasSuffix(pointer, "privateIpAddresses") {
		return nil // servers with networkType PUBLIC_ONLY or NONE have none, whatever the document says
	}
	return []string{fmt.Sprintf("%s /%s: %s", where, pointer, one.Reason)}
}

// unknownProperties lists the properties of an object, or of the objects of a list, that a schema does not name.
func unknownProperties(schema *openapi3.Schema, body any) []string {
	var out []string
	switch value := body.(type) {
	case []any:
		for _, element := range value {
			if schema.Items != nil {
				out = append(out, unknownProperties(schema.Items.Value, element)...)
			}
		}
	case map[string]any:
		for name, inner := range value {
			property := schema.Properties[name]
			if property == nil {
				out = append(out, name)
				continue
			}
			out = append(out, unknownProperties(property.Value, inner)...)
		}
	}
	slices.Sort(out)
	return out
}

// pattern is a regular expression with an assertion beside it, since Go's RE2 knows no lookaround: text matches when it
// matches want and also, and does not match not.
type pattern struct{ want, also, not *regexp.Regexp }

// MatchString implements openapi3.RegexMatcher.
func (p pattern) MatchString(text string) bool {
	return p.want.MatchString(text) && p.also.MatchString(text) && !p.not.MatchString(text)
}

// never matches no text.
const never = `[^\s\S]`

// rewritten are the patterns with lookaround as want, also and not.
var rewritten = map[string][3]string{
	`^(?=.*[a-zA-Z])([a-zA-Z0-9().-])+$`:  {`^[a-zA-Z0-9().-]+$`, `[a-zA-Z]`, never},  // hostnames
	`^(?=.*[a-zA-Z])([a-zA-Z0-9(). -])+$`: {`^[a-zA-Z0-9(). -]+$`, `[a-zA-Z]`, never}, // names of networks
	`^(?!\s*$).+`:                         {`^.+`, "", `^\s*$`},
	`^(?s)(?!\s*$).+`:                     {`(?s)^.+`, "", `^\s*$`},
	`^(?!-)[\w\-]{1,63}(?<!-)(\.(?!-)[\w\-]{1,63}(?<!-))*$`: { // domain names
		`^\w([\w-]{0,61}\w)?(\.\w([\w-]{0,61}\w)?)*$`, "", never},
}

// compilePattern compiles a "pattern" of the OpenAPI documents. Those with lookaround are known one by one; a new one
// is an error, never a match.
func compilePattern(expr string) (openapi3.RegexMatcher, error) {
	parts, ok := rewritten[expr]
	if !ok {
		parts = [3]string{expr, "", never}
	}
	var compiled [3]*regexp.Regexp
	for i, part := range parts {
		var err error
		if compiled[i], err = regexp.Compile(part); err != nil {
			return nil, fmt.Errorf("pattern %q of an OpenAPI document: write it for RE2 in compilePattern: %w", part,
				err)
		}
	}
	return pattern{compiled[0], compiled[1], compiled[2]}, nil
}
