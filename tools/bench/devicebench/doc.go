// Package devicebench measures an accelerator that XLA drives and keeps what it found in
// a report: whether the tests passed on it, how fast it trains and decodes, how near that
// is to the peak of its data sheet, what memory a step takes beside the plan, and the
// same step in PyTorch where a Python interpreter that has it is named.
//
// Invariant: every measurement is a process of its own. One that runs out of memory, or
// that its plugin ends, is a line of the report and takes no other with it.
package devicebench
