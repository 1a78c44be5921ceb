// Package status owns the outcomes of a program: the list that the sandbox
// answers with and that trajectories record. It is a separate package because
// internal/rl may not import the sandbox, and the sandbox imports no other package.
//
// Invariant: the texts are on the wire and in stored trajectories; they never change.
package status

// Status is the outcome of a program, or of a call that never became one.
type Status string

// Outcomes of a program that ran, or that was refused.
const (
	OK          Status = "ok"
	Error       Status = "error"        // uncaught exception or non-zero exit
	TimeLimit   Status = "time_limit"   // wall or CPU time
	MemoryLimit Status = "memory_limit" // address space or cgroup
	OutputLimit Status = "output_limit" // stdout or stderr
	Killed      Status = "killed"       // died by a signal that it caused
	Refused     Status = "refused"      // the request itself is not acceptable
)

// Outcomes without a program.
const (
	// Internal means that the sandbox failed. No trajectory records it.
	Internal Status = "internal"
	// Malformed means that a policy's call could not be read. The sandbox never
	// sees such a call.
	Malformed Status = "malformed"
)

// OfProgram reports whether s is an outcome of the program itself.
func (s Status) OfProgram() bool {
	switch s {
	case OK, Error, TimeLimit, MemoryLimit, OutputLimit, Killed, Refused:
		return true
	case Internal, Malformed:
		return false
	}
	return false // unknown to this version
}

// Failed reports whether s counts as a tool error.
func (s Status) Failed() bool { return s != OK }
