package tokenizer_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/chat/tokenizer"
)

// TestParseNamesWhatIsWrong changes one thing in the file of the golden ids.
func TestParseNamesWhatIsWrong(t *testing.T) {
	data, err := os.ReadFile("testdata/qwen_tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	good := string(data)
	tests := map[string]struct{ old, change, want string }{
		"other pattern":       {`\\p{N}| `, `\\p{N}{1,2}| `, `pre_tokenizer.pretokenizers[0].pattern.Regex "(?i:'s|`},
		"other behavior":      {`"behavior":"Isolated"`, `"behavior":"Removed"`, `pre_tokenizer.pretokenizers[0].behavior "Removed" is not supported, want Isolated`},
		"inverted split":      {`"invert":false`, `"invert":true`, "pre_tokenizer.pretokenizers[0].invert true is not supported"},
		"prefix space":        {`"add_prefix_space":false,"trim_offsets":true`, `"add_prefix_space":true,"trim_offsets":true`, "pre_tokenizer.pretokenizers[1].add_prefix_space true"},
		"split of a string":   {`{"Regex":`, `{"String":`, "pre_tokenizer.pretokenizers[0].pattern has no Regex"},
		"other pre-tokenizer": {`"pre_tokenizer":{"type":"Sequence"`, `"pre_tokenizer":{"type":"Metaspace"`, `pre_tokenizer.type "Metaspace" is not supported`},
		"more steps":          {`"pretokenizers":[`, `"pretokenizers":[{"type":"Digits"},`, "pre_tokenizer.pretokenizers are not supported, want Split then ByteLevel"},
		"no pre-tokenizer":    {`"pre_tokenizer":`, `"was":`, "pre_tokenizer is missing"},
		"other normalizer":    {`"normalizer":{"type":"NFC"}`, `"normalizer":{"type":"Sequence","normalizers":[]}`, `normalizer.type "Sequence" is not supported, want NFC or no normalizer`},
		"other decoder":       {`"decoder":{"type":"ByteLevel"`, `"decoder":{"type":"Fuse"`, "decoder is not supported, want ByteLevel"},
		"other post":          {`"post_processor":{"type":"ByteLevel"`, `"post_processor":{"type":"BertProcessing"`, `post_processor.type "BertProcessing" is not supported`},
		"byte fallback":       {`"byte_fallback":false`, `"byte_fallback":true`, "model.byte_fallback is not supported"},
		"several":             {`"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence"`, `"normalizer":{"type":"NFD"},"pre_tokenizer":{"type":"Digits"`, `normalizer.type "NFD" is not supported, want NFC or no normalizer; pre_tokenizer.type "Digits"`},
		"dropout":             {`"dropout":null`, `"dropout":0.1`, "model.dropout is not supported"},
		"missing byte":        {`"\"":1,`, ``, "vocabulary lacks byte 34"},
		"shared id":           {`:899}`, `:898}`, "shares id 898 with another"},
		"name given twice":    {`"vocab":{"!":0,`, `"vocab":{"!":0,"!":0,`, `duplicate object member name "!"`},
		"fractional id":       {`"vocab":{"!":0,`, `"vocab":{"!":0.5,`, `within "/model/vocab/!"`},
		"absent merge":        {`"merges":[[`, `"merges":[["!!!","zz"],[`, `merge 0 of "!!!" and "zz": not in the vocabulary`},
		"merge of three":      {`"merges":[[`, `"merges":["a b c",[`, `merge "a b c" is not two tokens`},
		"merge of one":        {`"merges":[[`, `"merges":[["a"],[`, `merge ["a"] is not two tokens`},
		"id of an added":      {`"id":901,`, `"id":1901,`, `added token "<|im_start|>" has id 1901, want 901`},
		"normalized added":    {`"content":"<think>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false`, `"content":"e\u0301","normalized":true`, "is normalized but not in form NFC itself"},
		"added twice":         {`"content":"<think>"`, `"content":"<tool_call>"`, `added token "<tool_call>" is given twice`},
		"empty added":         {`"content":"<think>"`, `"content":""`, "added token with id 924 is empty"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(good, c.old) {
				t.Fatalf("%q is not in the file", c.old)
			}
			_, err := tokenizer.Parse([]byte(strings.Replace(good, c.old, c.change, 1)))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestParseNamesAGap(t *testing.T) {
	good := string(marshal(t, trained(t, 5)))
	bad := strings.Replace(good, `"id": 260,`, `"id": 1000,`, 1)
	bad = strings.Replace(bad, `"<|im": 260`, `"<|im": 1000`, 1)
	_, err := tokenizer.Parse([]byte(bad))
	if want := "vocabulary has no token with id 260 but 266 tokens"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want %q", err, want)
	}
}

func TestTruncatedFilesAreErrors(t *testing.T) {
	good := marshal(t, trained(t, 5))
	for n := 0; n < len(good)-2; n += 97 {
		if _, err := tokenizer.Parse(good[:n]); err == nil || !strings.Contains(err.Error(), "EOF") {
			t.Fatalf("%d of %d bytes: error is %v", n, len(good), err)
		}
	}
}

func TestHugeFilesAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<40); err != nil { // sparse
		t.Skip("the file system has no sparse files of this size")
	}
	_, err := tokenizer.Load(path)
	if want := "1099511627776 bytes, the limit is 134217728"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want %q", err, want)
	}
}

// TestTemplatesGoAroundTheText checks a Sequence with a TemplateProcessing, as
// Llama 3 has it.
func TestTemplatesGoAroundTheText(t *testing.T) {
	data, err := os.ReadFile("testdata/qwen_tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	const old = `"post_processor":{"type":"ByteLevel"`
	template := func(special string) []byte {
		return []byte(strings.Replace(string(data), old, `"post_processor":{"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",`+
			`"single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}}],`+
			`"pair":[],"special_tokens":{`+special+`}}]},"was":{"type":"ByteLevel"`, 1))
	}
	tok, err := tokenizer.Parse(template(`"<s>":{"id":"<s>","ids":[901],"tokens":["x"]},"</s>":{"id":"</s>","ids":[902,900],"tokens":["y"]}`))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "template", "", tok.PostProcess([]int32{1, 2}), []int32{901, 1, 2, 902, 900})
	again, err := tokenizer.Parse(marshal(t, tok))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "template read back", "", again.PostProcess(nil), []int32{901, 902, 900})
	for special, want := range map[string]string{
		`"<s>":{"ids":[901]}`:                        `post_processor.processors[1].single[2]: "</s>" is not in`,
		`"<s>":{"ids":[901]},"</s>":{"ids":[99999]}`: "post_processor: no token has id 99999",
	} {
		if _, err := tokenizer.Parse(template(special)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want one with %q", err, want)
		}
	}
}
