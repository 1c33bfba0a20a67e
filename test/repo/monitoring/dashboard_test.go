package monitoring

import (
	"encoding/json"
	"strings"
	"testing"
)

type dashboard struct {
	UID    string  `json:"uid"`
	Title  string  `json:"title"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID      int    `json:"id"`
	Type    string `json:"type"`
	Title   string `json:"title"`
	GridPos place  `json:"gridPos"`
	Targets []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
}

// place is where a panel stands, in units of a grid that is 24 wide.
type place struct {
	X int `json:"x"`
	Y int `json:"y"`
	W int `json:"w"`
	H int `json:"h"`
}

func (p place) overlaps(q place) bool {
	return p.X < q.X+q.W && q.X < p.X+p.W && p.Y < q.Y+q.H && q.Y < p.Y+p.H
}

func panels(t *testing.T) []panel {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, "deploy/monitoring/dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || d.Title == "" || len(d.Panels) < 20 {
		t.Fatalf("dashboard %q %q has %d panels", d.UID, d.Title, len(d.Panels))
	}
	return d.Panels
}

// Everything that a panel asks for exists, and is PromQL.
func TestPanelsAskForWhatExists(t *testing.T) {
	known := exposed(t)
	said := literals(t)
	var rules []rule
	for _, each := range panels(t) {
		if each.Type != "row" && len(each.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", each.Title)
		}
		for _, target := range each.Targets {
			for _, fault := range known.faults(target.Expr) {
				t.Errorf("panel %q: %s", each.Title, fault)
			}
			checkWords(t, said, target.Expr)
			rules = append(rules, rule{Record: "panel:expression",
				Labels: map[string]string{"n": each.Title + target.Expr},
				Expr:   strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")})
		}
	}
	promtool(t, "check", "rules", write(t, "panels.yaml", ruleFile{Groups: []group{{Name: "panels", Rules: rules}}}))
}

// Panels stand in the grid, beside each other, each with an ID of its own.
func TestPanelsStandBesideEachOther(t *testing.T) {
	all := panels(t)
	for i, p := range all {
		if g := p.GridPos; g.X < 0 || g.W < 1 || g.H < 1 || g.X+g.W > 24 {
			t.Errorf("panel %q stands outside of the grid: %+v", p.Title, g)
		}
		for _, q := range all[i+1:] {
			if p.ID == q.ID || p.GridPos.overlaps(q.GridPos) {
				t.Errorf("panels %q and %q have one ID or one place", p.Title, q.Title)
			}
		}
	}
}
