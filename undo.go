package main

// undo.go owns the list of steps that take back what was done. A step is added
// right after what it undoes; failure and close run the same list, backwards. It does
// not own what a step does, nor when a list runs.

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

// last does the last step alone. One that fails stays, to be tried again.
func (u *undo) last() error {
	i := len(u.steps) - 1
	if err := u.steps[i].do(); err != nil {
		return fmt.Errorf("taking back %s: %w", u.steps[i].what, err)
	}
	u.steps = u.steps[:i]
	return nil
}

// back does steps, last first, up to one that fails: that and those below it stay,
// to be tried again.
func (u *undo) back() error {
	for len(u.steps) > 0 {
		if err := u.last(); err != nil {
			return err
		}
	}
	return nil
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
