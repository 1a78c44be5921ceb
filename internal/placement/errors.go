package placement

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of a Backend; see there.
var (
	// ErrUnavailable means that the scheduler did not answer, so that the outcome is open.
	ErrUnavailable = errors.New("the scheduler does not answer")
	// ErrDenied means that the scheduler does not allow the call.
	ErrDenied = errors.New("the scheduler denies it")
	// ErrUnsupported means that the scheduler lacks something which the call needs.
	ErrUnsupported = errors.New("the scheduler does not support it")
	// ErrNotExist means that the scheduler does not know the node, job or instance.
	ErrNotExist = errors.New("the scheduler does not know it")
	// ErrOutOfBounds means that a group may not have so many instances.
	ErrOutOfBounds = errors.New("out of the bounds of the group")
)

// ConflictError means that a job is not what the caller believes.
type ConflictError struct {
	Job string
	// Have is the scheduler's version of the job, Epoch its admission.
	Have  uint64
	Epoch int
	// Text tells what differs.
	Text string
}

// Error implements error.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("job %s was changed by others (index %d, epoch %d): %s", e.Job, e.Have, e.Epoch, e.Text)
}

// NoCapacityError means that a job cannot be placed whole.
type NoCapacityError struct {
	Job string
	// Why holds one line for each reason, in the words of a person.
	Why []string
}

// Error implements error.
func (e *NoCapacityError) Error() string {
	return fmt.Sprintf("no room for job %s: %s", e.Job, strings.Join(e.Why, "; "))
}
