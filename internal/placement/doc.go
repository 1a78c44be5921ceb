// Package placement decides on which nodes of a cluster the processes of a run stand. It
// has the vocabulary (nodes, jobs of equal instances), the port to the scheduler that
// starts them, the admission of runs (whole or not at all, by priority and then by time),
// the scaling of shared groups by load, and the operations that carry decisions out. It
// knows no scheduler's API. Rules are functions: events and figures go in, decisions come
// out, time is an argument.
//
// Invariant: at most one run is being started at a time, and only when a look at the
// cluster newer than any start or stop has room for all of it, so that no two runs ever
// hold parts of what each needs. A run's job is known by its id and epoch alone, so that a
// caller that does not know the outcome of an operation may repeat it.
package placement
