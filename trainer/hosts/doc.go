// Package hosts lets the trainers of several machines work on one update. A hub stands
// beside the trainer that holds the lease of a run; members in other processes connect to
// it, get the weights, and make passes over microbatches. The hub's trainer adds up what
// comes back in the order of the microbatches and alone makes the update. The package
// owns the protocol between the two, who may join, and the loss of a member. It knows
// neither flags nor the store.
//
// Invariant: an update has the bits of one process, whoever joins, is slow or dies.
package hosts
