// Package words finds words in comments, strings and pages that this project does not use: a reader should meet the
// words of the Kubernetes documentation and of the field, not private ones.
package words

import "regexp"

// word is a pattern of what is not written, and what is written instead.
type word struct {
	pattern string
	instead string
}

// forbidden holds words that have no other use in a text of this project, so each match is a mistake.
var forbidden = []word{
	{`tells?|told|telling`, "reports, reported, says"},
	{`somebody`, "someone, or who it is"},
	{`nobody`, "no one, no node, no client"},
	{`everybody`, "everyone, all clients"},
	{`anew`, "again"},
	{`alone`, "only"},
	{`shall`, "must, will"},
	{`ought`, "should"},
	{`mend(?:s|ed|ing)?`, "fix, repair"},
	{`(?:is|are|was|were|be|not|all) well`, "healthy, correct"},
	{`WHAT IS NOT WELL`, "PROBLEMS"},
	{`COULD BE RELEASED`, "RECLAIMABLE"},
	{`none that you may see`, "(no permission)"},
	{`asked to, it`, "optionally, it"},
	{`(?:is|are) there already`, "existing"},
	{`fix to last`, "permanent fix"},
	{`hearsay`, "address report"},
	{`hindrances?|hinder(?:s|ed|ing)?`, "blocked reason, blocked"},
	{`rubbish`, "foreign fields"},
	{`undemanding`, "without optional requests"},
	{`astray`, "drifted"},
	{`farewells?`, "release plan"},
	{`glances?`, "from cache"},
	{`census`, "condition metrics"},
	{`tidings`, "events"},
	{`heralds?`, "speaker"},
	{`candidac(?:y|ies)`, "eligibility"},
	{`impostors?`, "duplicate member"},
	{`contenders?`, "candidate"},
	{`borne`, "owned, assigned"},
	{`keepers?`, "reconciler"},
	{`askers?`, "prober"},
	{`thrice`, "three times"},
	{`henceforth|hitherto|whence|hence`, "from now on, so far, from where, so"},
}

// exception is a place where a forbidden word has to stay.
type exception struct {
	// file is a path below the root of the repository; a folder when it ends with a slash.
	file string
	// text is in the line that is allowed; empty allows every line of the file.
	text string
	why  string
}

var exceptions = []exception{
	{"test/repo/words/", "", "it is the list"},
	{"LICENSE", "", "it is not ours"},
	{"", "user nobody", "an account of Linux"},
	{"", "nogroup", "an account of Linux"},
}

var patterns = compile()

type pattern struct {
	word
	find *regexp.Regexp
}

func compile() []pattern {
	compiled := make([]pattern, len(forbidden))
	for i, w := range forbidden {
		compiled[i] = pattern{w, regexp.MustCompile(`(?i)\b(?:` + w.pattern + `)\b`)}
	}
	return compiled
}
