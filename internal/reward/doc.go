// Package reward turns a response into a reward: it finds the final answer, compares it with
// the key in one of the verifier's modes, and rewards a trajectory that is finished and
// correct. Environments decide what else counts as correct. File is a reward function of
// the user.
//
// Invariant: a verdict is a function of mode, key and response, and no response ends with an
// error. Without a reward file the reward is 1 or 0 and depends only on correctness and the
// stop reason.
package reward
