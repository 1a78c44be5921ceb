// Package evaluate evaluates any model behind OpenAI's API on sets of problems: what to
// sample, the journal of samples, verdicts, and the report. The model may be in this process
// or anywhere else; the package knows neither engine nor run.
//
// It also has the statistics of an evaluation (avg@k, pass@k and maj@k with confidence
// intervals, paired comparison of two policies) and the analysis of token entropies: which
// sampled tokens are the most uncertain of their trajectory (rStar2-Agent, section 5.4).
//
// Invariant: a sample in the journal is never sampled again, and one that is not whole is
// never counted. Every statistic is a function of the verdicts, whatever their order.
package evaluate
