// Package proc runs, asks and measures processes: a supervisor that starts children in
// order, restarts them with back-off and stops them in order; the health listener of a role
// and the questions to it; the resident memory and processor time of process trees, from
// /proc; and addresses for servers that must be told theirs before they start. It does not
// know what a process is for.
//
// Invariant: no child outlives the supervising process, not even one killed with SIGKILL.
// /healthz fails only where a restart would help; /readyz also fails while something that the
// process needs is out of reach. Measuring never fails: what cannot be read counts as
// nothing.
package proc
