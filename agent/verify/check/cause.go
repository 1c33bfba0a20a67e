package check

// FirstCause is the finding to fix first: the deepest failure, else the deepest that is unknown, else the deepest
// warning. found is false when the node is healthy.
func (r Report) FirstCause() (first Finding, found bool) {
	for _, status := range []Status{Fail, Unknown, Warn} {
		for _, f := range r.Findings {
			if f.Status == status {
				return f, true
			}
		}
	}
	return Finding{}, false
}
