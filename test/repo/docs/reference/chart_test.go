package reference

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValues(t *testing.T) {
	got, err := values([]byte(`# About all of them.

# What it is, in
# two lines, such as --dry-run or --uplink=bond1.
name: here
# A part.
part:
  image:
    # Its tag.
    tag: ""
  # What it needs.
  needs: {cpu: {a: 10m}}
  # A list.
  list: []
`))
	want := "| value | meaning | default |\n|---|---|---|\n" +
		"| `name` | What it is, in two lines, such as `--dry-run` or `--uplink=bond1`. | `here` |\n" +
		"| `part` | A part. | |\n" +
		"| `part.image.tag` | Its tag. | `\"\"` |\n" +
		"| `part.needs` | What it needs. | `{\"cpu\":{\"a\":\"10m\"}}` |\n" +
		"| `part.list` | A list. | `[]` |\n"
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for text, says := range map[string]string{
		"# One.\na: 1\nb: 2\n":              "the value b of the chart has no comment",
		"part:\n  # One.\n  a: 1\n  b: 2\n": "the value part.b of the chart has no comment",
		"":                                  "empty",
		"a: [":                              "parse",
	} {
		if _, err := values([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %s", text, err, says)
		}
	}
}
