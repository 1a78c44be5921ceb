package chatclient_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/openai/chatclient"
)

// cardOf is what a client notes of the model m of a list.
func cardOf(t *testing.T, list string) chatclient.Card {
	t.Helper()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, list) }))
	defer site.Close()
	c := chatclient.Client{URL: site.URL, Model: "m", Card: chatclient.Card{"root": "of before"}}
	if err := c.Check(t.Context()); err != nil {
		t.Errorf("%s: %v", list, err)
	}
	return c.Card
}

// vllm is the list of vLLM, whose times and ids of permissions are those of the request.
func vllm(now int, root string) string {
	return fmt.Sprintf(`{"object":"list","data":[{"id":"other","object":"model","created":%d,"owned_by":"vllm","root":"/x","parent":null,"max_model_len":64,"permission":[]},
		{"id":"m","object":"model","created":%[1]d,"owned_by":"vllm","root":%q,"parent":null,"max_model_len":4096,
		"permission":[{"id":"modelperm-%[1]d","object":"model_permission","created":%[1]d,"allow_sampling":true,"organization":"*","group":null}]}]}`, now, root)
}

// llamaCpp is the list of llama.cpp, which has a second one for clients of Ollama.
func llamaCpp(now, size int) string {
	return fmt.Sprintf(`{"models":[{"name":"m","model":"m","size":"","digest":""}],"object":"list","data":[{"id":"m","aliases":["m"],"tags":[],"object":"model",
		"architecture":{"input_modalities":["text"],"output_modalities":["text"]},"created":%d,"owned_by":"llamacpp",
		"meta":{"vocab_type":2,"n_vocab":512,"n_ctx":256,"n_ctx_train":512,"n_embd":64,"n_params":106944,"size":%d,"ftype":"F16"}}]}`, now, size)
}

// TestCard reads the lists of several servers. The time is no part of it.
func TestCard(t *testing.T) {
	ofVLLM := chatclient.Card{"root": "/models/a", "owned_by": "vllm", "max_model_len": "4096"}
	ofLlamaCpp := chatclient.Card{"owned_by": "llamacpp", "n_params": "106944", "size": "214784", "ftype": "F16", "n_ctx": "256"}
	for list, want := range map[string]chatclient.Card{
		vllm(1, "/models/a"): ofVLLM,
		vllm(2, "/models/a"): ofVLLM,
		llamaCpp(1, 214784):  ofLlamaCpp,
		llamaCpp(2, 214784):  ofLlamaCpp,
		`{"data":[{"id":"m","created":7,"owned_by":"temper","max_model_len":9,"weights":"0f"}]}`:                              {"owned_by": "temper", "max_model_len": "9", "weights": "0f"},
		`{"data":[{"id":"m","root":["/a"],"owned_by":"","max_model_len":null,"meta":{"size":3,"ftype":{}},"permission":{}}]}`: {"size": "3"},
		`{"data":[{"id":"m","root":null,"meta":null}]}`:                                                                       {},
		`{"data":[{"id":"m","meta":[1]}]}`:                                                                                    {},
		`{"data":[{"id":"another","root":"/models/a"}]}`:                                                                      nil,
		`{"data":[]}`: nil,
	} {
		if diff := cmp.Diff(want, cardOf(t, list)); diff != "" {
			t.Errorf("%s: want -, got +\n%s", list, diff)
		}
	}
}

// TestCardDiffers only in what both tell.
func TestCardDiffers(t *testing.T) {
	whole := chatclient.Card{"weights": "0f", "root": "/a", "owned_by": "vllm", "max_model_len": "4096", "size": "700", "of a later version": "x"}
	for _, c := range []struct {
		other chatclient.Card
		want  chatclient.Difference
	}{
		{chatclient.Card{"weights": "1f", "root": "/b"}, chatclient.Difference{Field: "weights", Was: "0f", Now: "1f"}},
		{chatclient.Card{"root": "/b", "weights": "0f"}, chatclient.Difference{Field: "root", Was: "/a", Now: "/b"}},
		{chatclient.Card{"owned_by": "llamacpp", "size": "1"}, chatclient.Difference{Field: "owned_by", Was: "vllm", Now: "llamacpp"}},
		{chatclient.Card{"max_model_len": "1"}, chatclient.Difference{Field: "max_model_len", Was: "4096", Now: "1"}},
		{chatclient.Card{"size": "1"}, chatclient.Difference{Field: "size", Was: "700", Now: "1"}},
		{chatclient.Card{"root": "/a", "n_ctx": "256"}, chatclient.Difference{}},
		{nil, chatclient.Difference{}},
	} {
		if got := whole.Differs(c.other); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.other, got, c.want)
		}
		if got := c.other.Differs(whole); got.Field != c.want.Field || got.Was != c.want.Now {
			t.Errorf("%v first: %+v, want %+v", c.other, got, c.want)
		}
	}
	if diff := cmp.Diff(chatclient.Card{"root": "/a", "size": "7"}, chatclient.Card{"root": "/a"}.With(chatclient.Card{"root": "/b", "size": "7"})); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}
