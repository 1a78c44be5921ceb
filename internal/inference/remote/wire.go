package remote

import (
	"time"

	"temper/internal/blob"
	"temper/internal/inference"
	"temper/internal/rl"
)

// Paths of the protocol. All but PathStatus are POST.
const (
	PathGenerate = "/v1/generate"
	PathCut      = "/v1/cut"
	PathRelease  = "/v1/release"
	PathLoad     = "/v1/load"
	PathPrefetch = "/v1/prefetch"
	PathStatus   = "/v1/status"
	PathDrain    = "/v1/drain"
)

// GenerateRequest asks for one generation. The same request to the same version gives
// the same tokens, so that a client may send it again after a connection broke.
type GenerateRequest struct {
	// ID names the request for PathCut; clients make it unique.
	ID          string  `json:"id"`
	Tokens      Int32s  `json:"tokens"`
	MaxTokens   int     `json:"max_tokens"`
	Stop        []int32 `json:"stop,omitempty"`
	Temperature float32 `json:"temperature"`
	Seed        uint64  `json:"seed"`
	// Version the caller insists on; -1 accepts any.
	Version int64  `json:"version"`
	Session string `json:"session,omitempty"`
	// Sampler removes unlikely tokens before the draw; nil for none.
	Sampler *inference.Sampler `json:"sampler,omitempty"`
	// TopLogprobs asks for that many of the likeliest tokens at each position.
	TopLogprobs int `json:"top_logprobs,omitempty"`
}

// Generated is the answer to a GenerateRequest.
type Generated struct {
	Tokens   Int32s                     `json:"tokens"`
	Logprobs Float32s                   `json:"logprobs"`
	Kept     []inference.Kept           `json:"kept,omitempty"`
	Top      [][]inference.TokenLogprob `json:"top,omitempty"`
	Finish   rl.FinishReason            `json:"finish"`
	Version  int64                      `json:"version"`
}

// CutRequest ends a generation, which is then answered with what it has sampled.
type CutRequest struct {
	ID string `json:"id"`
}

// CutAnswer reports whether the generation was under way.
type CutAnswer struct {
	Found bool `json:"found"`
}

// ReleaseRequest drops what an engine keeps for sessions.
type ReleaseRequest struct {
	Sessions []string `json:"sessions"`
}

// LoadRequest makes an engine serve a published policy, or begin to read it.
type LoadRequest struct {
	Ref     blob.Ref `json:"ref"`
	Version int64    `json:"version"`
}

// Loaded answers a LoadRequest once the engine has read the policy from the store,
// found its bytes as the reference pins them, and serves it.
type Loaded struct {
	Version int64 `json:"version"`
	// SHA256 is the sum of the policy's manifest, which names the sums of its files.
	SHA256 string `json:"sha256"`
}

// Identity tells which engine this is. It does not change while a process lives.
type Identity struct {
	Name string `json:"name"`
	// Run is the run whose policies the engine takes.
	Run string `json:"run"`
	// Build is the program's version line.
	Build string `json:"build"`
	// Model is a fingerprint of all that a policy must fit and that decides bits.
	Model string `json:"model"`
	// Vocab is the number of token ids.
	Vocab int `json:"vocab"`
	// Kernels is one line with all that decides bits on the engine's device. Engines
	// with other lines must not sample for one run together.
	Kernels string `json:"kernels,omitempty"`
	// Holder names the process as no other is named.
	Holder string `json:"holder"`
}

// Status is the answer of PathStatus.
type Status struct {
	inference.Status
	Identity
	// SHA256 is the sum of the manifest of the policy that is served; empty before the
	// first load.
	SHA256 string `json:"sha256,omitempty"`
}

// Limits of the handlers.
const (
	// bodyTime is how long a body may take to arrive.
	bodyTime = 20 * time.Second
	// answerTime is how long a client may take to read an answer.
	answerTime = 30 * time.Second
	// smallBody bounds every body but the body of a generation.
	smallBody = 1 << 20
	// bytesPerToken is the size of a prompt's token in base64, rounded up.
	bytesPerToken = 6
)
