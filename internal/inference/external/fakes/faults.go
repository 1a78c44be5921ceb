package fakes

import "time"

// Faults are what a server does wrong. Those with a number do it that many times.
type Faults struct {
	StaleWeights bool `json:"stale_weights,omitempty"` // reload: 200 and the new label, the old weights
	NoDevMode    bool `json:"no_dev_mode,omitempty"`   // the routes that load are not there
	LoadFails    bool `json:"load_fails,omitempty"`
	RawLogprobs  bool `json:"raw_logprobs,omitempty"` // from before the temperature
	WrongLabel   int  `json:"wrong_label,omitempty"`  // answers under another label
	NoLabel      bool `json:"no_label,omitempty"`
	MixedVersion int  `json:"mixed_version,omitempty"` // answers of two versions
	Abort        int  `json:"abort,omitempty"`         // answers that a pause ends after three tokens
	Unavailable  int  `json:"unavailable,omitempty"`   // 503
	Broken       int  `json:"broken,omitempty"`        // connections that end in the middle of the answer
	ErrorInside  int  `json:"error_inside,omitempty"`  // 200 with an error
	Page         int  `json:"page,omitempty"`          // 200 with a web page
	Restart      int  `json:"restart,omitempty"`       // the server dies and comes back with its first weights

	MissingLogprob bool          `json:"missing_logprob,omitempty"` // none for the last token
	ExtraLogprob   bool          `json:"extra_logprob,omitempty"`
	NullLogprob    bool          `json:"null_logprob,omitempty"`
	InfLogprob     bool          `json:"inf_logprob,omitempty"`
	CutStop        bool          `json:"cut_stop,omitempty"`     // the stop token is left out
	Overshoot      bool          `json:"overshoot,omitempty"`    // continues after a stop token
	PaddedToken    bool          `json:"padded_token,omitempty"` // an id outside the vocabulary
	ShortContext   bool          `json:"short_context,omitempty"`
	Slow           time.Duration `json:"slow,omitempty"` // for each token
	NoCapacity     bool          `json:"no_capacity,omitempty"`
	NaNLoad        bool          `json:"nan_load,omitempty"`
}

// take uses a counted fault up by one.
func take(n *int) bool {
	if *n <= 0 {
		return false
	}
	*n--
	return true
}
