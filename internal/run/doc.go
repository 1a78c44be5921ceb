// Package run defines what a run is: its plan, its records in the store from the
// configuration to the summary, and the decisions made from them. Package setup makes runs;
// packages learner and sampling make their steps.
//
// Invariant: each record is written once, whichever attempt writes it, and each decision is
// stored before anything follows from it.
package run
