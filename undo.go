package main

// undo.go owns the list of steps that take back what was done. A step is added
// right after what it undoes; failure and close run the same list, backwards.

import "fmt"

// undo is such a list. The zero value is empty. One goroutine uses it at a time.
type undo struct {
	steps []undoStep
}

type undoStep struct {
	what string
	do   func() error
}

func (u *undo) add(what string, do func() error) {
	u.steps = append(u.steps, undoStep{what, do})
}

// run does every step, last first, whatever happens, and returns the first
// failure. A device that is gone fails every step in the same way; what else
// there is to free is freed all the same.
func (u *undo) run() (first error) {
	for i := len(u.steps) - 1; i >= 0; i-- {
		if err := u.steps[i].do(); err != nil && first == nil {
			first = fmt.Errorf("taking back %s: %w", u.steps[i].what, err)
		}
	}
	u.steps = nil
	return first
}
