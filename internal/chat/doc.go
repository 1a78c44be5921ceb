// Package chat turns conversations into tokens: the small ChatML and the chat templates of
// checkpoints, the hermes tool-call format, the text of tool responses, the schemas of tool
// arguments, and the append-only Transcript that training dialogues and rollouts share. It
// does not generate, run tools or score. It knows as much of JSON Schema as type hints can
// say.
//
// Invariant: tokens are only ever appended; what a policy sampled is never decoded and
// encoded again, and text of users and tools never becomes a control token.
package chat
