package cli

import (
	"errors"
	"fmt"

	"temper/internal/config"
	"temper/internal/fault"
)

// Exit statuses: 0 is done, 1 is a fault of the system, 2 is a mistake of the
// user, and 130 says that a person stopped waiting before the run ended.
const (
	ExitSystem      = 1
	ExitUser        = 2
	ExitInterrupted = 130
)

// ErrInterrupted ends a wait for a run that continues.
var ErrInterrupted = errors.New("interrupted")

// usageError marks a mistake of the user.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks err as a mistake of the user.
func Usage(err error) error { return usageError{err} }

// Usagef formats a mistake of the user.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// ExitCode is the exit status of a command that ended with err.
func ExitCode(err error) int {
	var usage usageError
	var problems config.Problems
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage), errors.As(err, &problems), fault.IsUsers(err):
		return ExitUser
	case errors.Is(err, ErrInterrupted):
		return ExitInterrupted
	default:
		return ExitSystem
	}
}
