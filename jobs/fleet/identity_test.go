//go:build integration

package fleet_test

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/jobs/nomad"
	"temper/jobs/nomadtest"
)

// TestIdentityForTheStore: with store_role a process has a token that the servers have signed for the store, and
// no keys. Servers before 1.7 sign none: that they are refused is TestOperator's matter.
func TestIdentityForTheStore(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	o := &operator{t: t, agents: nomadtest.Start(t, nomadtest.Options{Root: "../.."}), folder: t.TempDir()}
	client, err := nomad.Connect(nomad.Config{Address: o.agents.Address})
	if err != nil {
		t.Fatal(err)
	}
	version, err := client.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if version.Before(nomad.Version{1, 7, 0}) {
		t.Skipf("Nomad %s signs no identities: name a newer one with %s (issue 15, 2026-11-27)", version, nomadtest.BinaryKey)
	}
	if err := os.WriteFile(filepath.Join(o.folder, "temper"), fmt.Appendf(nil, program, python), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	o.agents.Node(nomadtest.Node{Name: "one"})
	const role = "arn:aws:iam::123456789012:role/temper"
	f := o.fleet(o.parse(fmt.Sprintf(file, "shop", o.folder, "s3://runs/a")+"store_role: "+role+"\n"), "")
	o.init(f, false)
	if err := o.apply(f, false); err != nil {
		t.Fatal(err)
	}
	if plan, err := f.Plan(t.Context()); err != nil || !plan.Empty() {
		t.Errorf("plan of a cluster with a role at its store: %+v (%v)", plan, err)
	}
	env := environmentOf(t, o.agents.Running("shop-control"))
	if env["AWS_ROLE_ARN"] != role || env["AWS_ACCESS_KEY_ID"] != "" {
		t.Errorf("the environment has the role %q and the key %q", env["AWS_ROLE_ARN"], env["AWS_ACCESS_KEY_ID"])
	}
	token, err := os.ReadFile(env["AWS_WEB_IDENTITY_TOKEN_FILE"])
	if err != nil {
		t.Fatal(err)
	}
	claims, err := verifyToken(o.agents.API, string(token))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Trim(fmt.Sprint(claims.Aud), "[]") != "sts.amazonaws.com" || !strings.Contains(claims.Sub, ":shop-control:") || time.Until(time.Unix(claims.Exp, 0)) > time.Hour {
		t.Errorf("the token says %+v", claims)
	}
	if _, err := verifyToken(o.agents.API, string(token[:len(token)-8])+"AAAAAAAA"); err == nil {
		t.Error("a forged signature passes")
	}
}

// environmentOf is that of the first process of an allocation.
func environmentOf(t *testing.T, allocs []*api.AllocationListStub) map[string]string {
	t.Helper()
	if len(allocs) == 0 {
		t.Fatal("none runs")
	}
	for _, pid := range nomadtest.Pids(allocs[0].ID) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || !bytes.Contains(text, []byte("AWS_ROLE_ARN=")) {
			continue
		}
		out := map[string]string{}
		for kv := range strings.SplitSeq(string(text), "\x00") {
			key, value, _ := strings.Cut(kv, "=")
			out[key] = value
		}
		return out
	}
	t.Fatal("no process has a role")
	return nil
}

type tokenClaims struct {
	Aud any // a text, or several
	Sub string
	Exp int64
}

// verifyToken checks a token as the store would: by the keys that the servers publish.
func verifyToken(client *api.Client, token string) (claims tokenClaims, err error) {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return claims, fmt.Errorf("a token of %d parts", len(parts))
	}
	var header struct{ Alg, Kid string }
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err := errors.Join(err, decodePart(parts[0], &header), decodePart(parts[1], &claims)); err != nil {
		return claims, err
	}
	var published struct {
		Keys []struct{ Kid, N, E string }
	}
	if _, err := client.Raw().Query("/.well-known/jwks.json", &published, nil); err != nil {
		return claims, err
	}
	for _, k := range published.Keys {
		if k.Kid != header.Kid || header.Alg != "RS256" {
			continue
		}
		n, err := base64.RawURLEncoding.DecodeString(k.N)
		e, err2 := base64.RawURLEncoding.DecodeString(k.E)
		if err := errors.Join(err, err2); err != nil {
			return claims, err
		}
		sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
		return claims, rsa.VerifyPKCS1v15(&rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}, crypto.SHA256, sum[:], signature)
	}
	return claims, fmt.Errorf("no key %s of %s is published", header.Kid, header.Alg)
}

func decodePart(part string, into any) error {
	text, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}
