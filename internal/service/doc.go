// Package service prepares the service of one machine that `temper up` starts: the checks
// before, the home that it claims, its processes, and the examination of a machine by
// `temper doctor`. A supervisor starts the processes.
//
// Invariant: one service a home, and no secret in a command line. Every finding of the
// doctor is one line that says what to do.
package service
