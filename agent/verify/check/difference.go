package check

import "slices"

// With returns the whole report of a node of which only the difference to this report is known: findings that are not
// in difference are as they are here, except those that cannot be evaluated because a check that they depend on did not
// pass.
func (r Report) With(difference Report) Report {
	whole := difference
	whole.Findings = make([]Finding, 0, len(r.Findings))
	deeper := map[ID]ID{}
	for _, f := range r.Findings {
		if own := difference.Finding(f.ID); own.ID != "" {
			f = own
		} else if i := slices.IndexFunc(f.DependsOn, func(id ID) bool { return deeper[id] != "" }); i >= 0 {
			deeper[f.ID] = deeper[f.DependsOn[i]]
			f.Status = Skip
			f.Because = becauseOf + string(deeper[f.ID])
			f.Observed = ""
		}
		if f.Status == Fail || f.Status == Unknown {
			deeper[f.ID] = f.ID
		}
		whole.Findings = append(whole.Findings, f)
	}
	return whole
}
