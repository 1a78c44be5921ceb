// Package hosts lets several machines work on one update. A hub runs beside the trainer
// that holds the lease of a run. Hosts are other processes that connect to the hub, get
// the weights, and make passes over microbatches. The hub's trainer adds up the results in
// the order of the microbatches, and it alone makes the update. The package owns the
// protocol between the two, the checks before a host joins, and the loss of a host. It
// knows neither flags nor the store.
//
// Invariant: an update has the bits of one process, however many hosts join, stall or die.
package hosts
