// Package remote lets a process use an engine of another process of this service: the
// protocol (paths, messages, error codes), the server over any engine, and the client. It
// opens no listener and does not choose between engines.
//
// Invariant: a generation over the network has the bits of one in the process. A client
// believes an answer only after checking it: one that cannot be true is ErrGarbage and never
// becomes part of a trajectory.
package remote
