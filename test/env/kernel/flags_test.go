//go:build linux

package kernel

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTranslate(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want flags
	}{
		"nothing": {want: flags{outputs: map[string]string{}}},
		"selection passes": {
			args: []string{"-test.run=A|B", "-test.v=test2json", "-test.count=2", "-test.paniconexit0"},
			want: flags{guest: []string{"-test.run=A|B", "-test.v=test2json", "-test.count=2", "-test.paniconexit0"},
				outputs: map[string]string{}},
		},
		"time limit is known and passes": {
			args: []string{"-test.timeout=90s"},
			want: flags{guest: []string{"-test.timeout=90s"}, timeout: 90 * time.Second, outputs: map[string]string{}},
		},
		"outputs are brought back": {
			args: []string{"-test.outputdir=/out", "-test.coverprofile=c.out", "-test.trace=/abs/t"},
			want: flags{
				guest:   []string{"-test.coverprofile=/tmp/test-coverprofile", "-test.trace=/tmp/test-trace"},
				outputs: map[string]string{"/tmp/test-coverprofile": "/out/c.out", "/tmp/test-trace": "/abs/t"},
			},
		},
		"the go command's own files stay": {
			args: []string{"-test.testlogfile=/tmp/log", "-test.gocoverdir=/tmp/c"},
			want: flags{outputs: map[string]string{}},
		},
		"arguments of the tests stay as they are": {
			args: []string{"-update", "-test.short", "word", "-test.testlogfile=x"},
			want: flags{guest: []string{"-update", "-test.short", "word", "-test.testlogfile=x"},
				outputs: map[string]string{}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := translate(tc.args)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(flags{})); diff != "" {
				t.Errorf("translate(%q) differs (-want +got):\n%s", tc.args, diff)
			}
		})
	}
}

func TestTranslateRefuses(t *testing.T) {
	for _, args := range [][]string{{"-test.fuzz=FuzzX"}, {"-test.timeout=soon"}} {
		if got, err := translate(args); err == nil {
			t.Errorf("translate(%q) = %v, want an error", args, got)
		}
	}
}

func TestPassedHandsOnWhatTestsDependOn(t *testing.T) {
	got := passed([]string{"PNAP_SEED_FACTOR=3", "HOME=/home/x", "PNAP_KERNEL=machine", "PNAP_RUN=/tmp/x", "CI=true",
		"TZ=UTC"})
	if diff := cmp.Diff([]string{"PNAP_SEED_FACTOR=3", "CI=true", "TZ=UTC"}, got); diff != "" {
		t.Errorf("passed() differs (-want +got):\n%s", diff)
	}
}
