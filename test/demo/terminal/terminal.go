// Package terminal draws what a terminal shows as a picture (SVG) that pages can contain, and reads such pictures.
package terminal

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Screen is a terminal in which commands were run.
type Screen struct {
	// Title and Description are for readers who cannot see the picture.
	Title, Description string
	// Columns is the width of the terminal: a longer line continues on the next one.
	Columns int
	// Commands were run one after the other.
	Commands []Command
}

// Command is a command and what it printed, with its colors as escapes (SGR, ECMA-48, section 8.3.117).
type Command struct{ Prompt, Typed, Output string }

// When lines appear: the answer to a command at once, the next command when the reader had time for the answer.
const (
	lineTime    = 30 * time.Millisecond
	commandTime = time.Second
)

// line is one line of the screen.
type line struct {
	runs      []run
	continued bool // of the line above, which was too long
	typed     bool
}

// run is text in one style, at a column.
type run struct {
	column int
	style  style
	text   string
}

// style is how a run looks: bold, dim or neither, in the color with a number of SGR (30 to 37), or zero.
type style struct {
	bold, dim bool
	color     int
}

// lines lays the commands out.
func (s Screen) lines() ([]line, error) {
	var all []line
	for _, c := range s.Commands {
		prompt := "\x1b[32m" + c.Prompt + "\x1b[0m " + "\x1b[1m" + c.Typed + "\x1b[0m"
		for i, text := range strings.Split(prompt+"\n"+strings.TrimRight(c.Output, "\n"), "\n") {
			cells, err := parse(strings.TrimRight(text, "\r"))
			if err != nil {
				return nil, fmt.Errorf("line %d of %q: %w", i, c.Typed, err)
			}
			for j, part := range slices.Collect(slices.Chunk(cells, s.Columns)) {
				all = append(all, line{runs: runs(part), continued: j > 0, typed: i == 0 && j == 0})
			}
			if len(cells) == 0 {
				all = append(all, line{})
			}
		}
	}
	return all, nil
}

// cell is one character of the screen.
type cell struct {
	style style
	char  rune
}

var escape = regexp.MustCompile(`^\x1b\[([0-9;]*)m`)

// tabStop is how far tabs reach.
const tabStop = 8

// parse separates the characters of a line from the escapes that color them.
func parse(text string) ([]cell, error) {
	var cells []cell
	var now style
	for text != "" {
		if match := escape.FindStringSubmatch(text); match != nil {
			if err := now.apply(match[1]); err != nil {
				return nil, err
			}
			text = text[len(match[0]):]
			continue
		}
		char, size := utf8.DecodeRuneInString(text)
		text = text[size:]
		switch {
		case char == '\t':
			for range tabStop - len(cells)%tabStop {
				cells = append(cells, cell{now, ' '})
			}
		case char < ' ' || char == utf8.RuneError:
			return nil, fmt.Errorf("the character %q cannot be drawn", char)
		default:
			cells = append(cells, cell{now, char})
		}
	}
	return cells, nil
}

var errUnknown = errors.New("the way to draw an escape is not known")

// apply changes the style as the parameters of an escape say.
func (s *style) apply(parameters string) error {
	for each := range strings.SplitSeq(cmp.Or(parameters, "0"), ";") {
		switch number, err := strconv.Atoi(each); {
		case err != nil:
			return fmt.Errorf("%w: %q", errUnknown, parameters)
		case number == 0:
			*s = style{}
		case number == 1:
			s.bold = true
		case number == 2:
			s.dim = true
		case number >= 30 && number <= 37:
			s.color = number
		default:
			return fmt.Errorf("%w: %q", errUnknown, parameters)
		}
	}
	return nil
}

// runs joins the cells of one style. Blanks at the beginning and the end of a run need not be drawn.
func runs(cells []cell) []run {
	var all []run
	for begin := 0; begin < len(cells); {
		end := begin
		var text strings.Builder
		for ; end < len(cells) && cells[end].style == cells[begin].style; end++ {
			text.WriteRune(cells[end].char)
		}
		drawn := strings.TrimLeft(text.String(), " ")
		if blank := end - begin - utf8.RuneCountInString(drawn); drawn != "" {
			all = append(all, run{begin + blank, cells[begin].style, strings.TrimRight(drawn, " ")})
		}
		begin = end
	}
	return all
}
