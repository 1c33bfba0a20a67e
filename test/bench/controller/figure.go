package controller

import (
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Figure is one measured number.
type Figure struct {
	// Name is stable: tables and releases refer to it.
	Name string
	// Value in Unit.
	Value float64
	// Unit such as calls, s or MiB.
	Unit string
	// Limit is the greatest Value that is good enough, where Limited is true.
	Limit   float64
	Limited bool
}

// limited is a figure that must not exceed a limit.
func limited(name string, value float64, unit string, limit float64) Figure {
	return Figure{Name: name, Value: value, Unit: unit, Limit: limit, Limited: true}
}

// reported is a figure that nothing depends on.
func reported(name string, value float64, unit string) Figure {
	return Figure{Name: name, Value: value, Unit: unit}
}

// String is the line that users and scripts read.
func (f Figure) String() string {
	return fmt.Sprintf("figure %s %s %s", f.Name, strconv.FormatFloat(f.Value, 'f', f.decimals(), 64), f.Unit)
}

// decimals are enough for what is measured: whole numbers are counted, all else is timed.
func (f Figure) decimals() int {
	if f.Value == float64(int64(f.Value)) {
		return 0
	}
	return 2
}

// Broken returns an error with the limit that the figure exceeds, or nil.
func (f Figure) Broken() error {
	if !f.Limited || f.Value <= f.Limit {
		return nil
	}
	return fmt.Errorf("%s is %g %s, more than %g", f.Name, f.Value, f.Unit, f.Limit)
}

// Report prints figures as lines and returns an error that names every broken limit.
func Report(out io.Writer, figures []Figure) error {
	var broken []error
	for _, f := range figures {
		if _, err := fmt.Fprintln(out, f); err != nil {
			return fmt.Errorf("print figures: %w", err)
		}
		broken = append(broken, f.Broken())
	}
	return errors.Join(broken...)
}
