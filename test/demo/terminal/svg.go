package terminal

import (
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// The size of a character, and of what surrounds the text, in units of the picture.
const (
	cellWidth  = 7.8
	cellHeight = 18
	margin     = 18
	bar        = 34
)

// head begins the picture. Its background is its own, so that it reads on light and dark pages. Where animations are
// not shown or not wanted, all lines are there from the beginning.
const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" ` +
	`role="img" aria-labelledby="title desc" xml:space="preserve">
<title id="title">%[3]s</title>
<desc id="desc">%[4]s</desc>
<style>
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #e2e8f0; }
.b { font-weight: 700; } .d { fill: #94a3b8; }
.c31 { fill: #f87171; } .c32 { fill: #4ade80; } .c33 { fill: #facc15; } .c34 { fill: #60a5fa; }
.c35 { fill: #e879f9; } .c36 { fill: #22d3ee; } .c30, .c37 { fill: #94a3b8; }
g { animation: appear 1ms backwards; }
@keyframes appear { from { opacity: 0; } }
@media (prefers-reduced-motion: reduce) { g { animation: none; } }
</style>
<rect x="1" y="1" width="%[5]d" height="%[6]d" rx="10" fill="#0f172a" stroke="#475569" stroke-width="2"/>
<circle cx="22" cy="19" r="6" fill="#f87171"/><circle cx="42" cy="19" r="6" fill="#facc15"/>` +
	`<circle cx="62" cy="19" r="6" fill="#4ade80"/>
`

// SVG draws the screen.
func (s Screen) SVG() ([]byte, error) {
	lines, err := s.lines()
	if err != nil {
		return nil, err
	}
	width := int(math.Ceil(float64(s.Columns)*cellWidth)) + 2*margin
	height := bar + len(lines)*cellHeight + margin
	var b strings.Builder
	fmt.Fprintf(&b, head, width, height, escaped(s.Title), escaped(s.Description), width-2, height-2)
	var at time.Duration
	for i, l := range lines {
		at += lineTime
		if l.typed && i > 0 {
			at += commandTime
		}
		l.write(&b, bar+(i+1)*cellHeight, at)
	}
	b.WriteString("</svg>\n")
	return []byte(b.String()), nil
}

// write draws a line that appears after a time. Each run begins at its column and has the width of its characters, so
// that columns are straight in any font.
func (l line) write(b *strings.Builder, y int, after time.Duration) {
	kind := "line"
	if l.continued {
		kind = "continued"
	}
	fmt.Fprintf(b, `<g class="%s" style="animation-delay:%dms">`, kind, after.Milliseconds())
	for _, r := range l.runs {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" textLength="%.1f"%s>%s</text>`, margin+float64(r.column)*cellWidth, y,
			float64(utf8.RuneCountInString(r.text))*cellWidth, r.style.class(), escaped(r.text))
	}
	b.WriteString("</g>\n")
}

// class is the attribute of a text in that style.
func (s style) class() string {
	var names []string
	if s.bold {
		names = append(names, "b")
	}
	if s.dim {
		names = append(names, "d")
	}
	if s.color != 0 {
		names = append(names, fmt.Sprintf("c%d", s.color))
	}
	if names == nil {
		return ""
	}
	return ` class="` + strings.Join(names, " ") + `"`
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a strings.Builder never fails
	return b.String()
}

// picture is what Lines needs of an SVG.
type picture struct {
	Groups []struct {
		Class string `xml:"class,attr"`
		Texts []struct {
			X    float64 `xml:"x,attr"`
			Text string  `xml:",chardata"`
		} `xml:"text"`
	} `xml:"g"`
}

// Lines are the lines that a picture shows, without colors. Those that were too long for the terminal are whole again,
// but without what was blank where they were broken.
func Lines(svg []byte) ([]string, error) {
	var p picture
	if err := xml.Unmarshal(svg, &p); err != nil {
		return nil, fmt.Errorf("read a picture of a terminal: %w", err)
	}
	if len(p.Groups) == 0 {
		return nil, errors.New("the picture shows no lines")
	}
	var all []string
	for _, g := range p.Groups {
		text := ""
		for _, t := range g.Texts {
			column := int(math.Round((t.X - margin) / cellWidth))
			text += strings.Repeat(" ", max(0, column-utf8.RuneCountInString(text))) + t.Text
		}
		if last := len(all) - 1; g.Class == "continued" && last >= 0 {
			all[last] += text
			continue
		}
		all = append(all, text)
	}
	return all, nil
}
