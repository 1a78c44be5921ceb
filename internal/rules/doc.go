// Package rules judges a run by its figures: alerts on single steps (rewards that fell,
// groups that teach nothing, a policy without entropy), the end of a stage (plateau, bound,
// collapse), and the gate that a newly trained policy passes to replace the last good one.
// It reads and writes nothing: callers store its state and its verdicts.
//
// Invariant: a verdict is a function of stored figures, so that a run that was killed ends
// its stages where it would have ended them. A score that is unknown passes no gate. Nothing
// here changes what a step computes.
package rules
