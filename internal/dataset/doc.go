// Package dataset holds sets of problems and of training dialogues: the format of their
// files, the reading of a run's sources, the ledger that hands out each problem once per
// epoch, and the rules that clean public sets: equal prompts, words shared with a benchmark,
// answers that can be verified. Package env makes problems.
//
// Invariant: what a step trains on is a pure function of seed, problems and step, so that a
// crash changes nothing. A rule drops a problem only for something that it can show.
package dataset
