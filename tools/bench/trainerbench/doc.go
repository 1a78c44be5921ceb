// Package trainerbench measures what training and decoding cost on this machine:
// tokens per second of wall time and of processor time, the share of the
// machine's own matrix-product speed that a training step reaches, memory, and
// where the time goes. It measures the trainer and the engine as they are,
// through their exported methods, and changes nothing in them.
//
// Invariant: figures of one report come from one process and one run, so that
// their ratios hold on a shared machine too; processor time is the figure to
// compare when other programs run beside it.
package trainerbench
