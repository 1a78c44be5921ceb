package s3blob_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/s3blob"
	"temper/internal/config"
)

// bare takes away every account that this machine has. Files are looked for in
// the folder that it returns.
func bare(t *testing.T) string {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "") // restores it afterwards
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "credentials"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// seen is what a server was asked.
type seen struct {
	mu       sync.Mutex
	requests []*http.Request
	forms    []string
}

// serve answers everything alike and notes the requests.
func serve(t *testing.T, status int, body string) (*seen, string) {
	t.Helper()
	s := &seen{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // a body that is no form has no values
		s.mu.Lock()
		s.requests, s.forms = append(s.requests, r), append(s.forms, r.Form.Encode())
		s.mu.Unlock()
		w.Header().Set("Content-Type", "text/xml")
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body) // the client has its own error
	}))
	t.Cleanup(server.Close)
	return s, server.URL
}

// signed is the account, the region and the session token of the last request.
func (s *seen) signed(t *testing.T) (account, region, token string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) == 0 {
		t.Fatal("the server was not asked")
	}
	h := s.requests[len(s.requests)-1].Header
	_, scope, _ := strings.Cut(h.Get("Authorization"), "Credential=")
	parts := strings.Split(scope, "/")
	if len(parts) < 4 {
		t.Fatalf("Authorization is %q", h.Get("Authorization"))
	}
	return parts[0], parts[2], h.Get("X-Amz-Security-Token")
}

const assumed = `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>
<Credentials><AccessKeyId>ASIAROLE</AccessKeyId><SecretAccessKey>of the role</SecretAccessKey><SessionToken>session</SessionToken>
<Expiration>2124-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`

const refusal = `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type><Code>InvalidIdentityToken</Code>
<Message>no such issuer</Message></Error></ErrorResponse>`

// TestWebIdentity: a token in a file, as a cluster mounts it, becomes a role's account.
func TestWebIdentity(t *testing.T) {
	file := filepath.Join(bare(t), "token")
	write(t, file, "a.signed.token")
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", file)
	t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/trainer")
	t.Setenv("AWS_REGION", "eu-north-1")
	sts, stsURL := serve(t, http.StatusOK, assumed)
	t.Setenv("AWS_ENDPOINT_URL_STS", stsURL)
	bucket, bucketURL := serve(t, http.StatusOK, "")
	store, err := s3blob.New(t.Context(), config.StorePlace{Bucket: "b", Endpoint: bucketURL, PathStyle: true}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := store.Stat(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
	}
	if account, region, token := bucket.signed(t); account != "ASIAROLE" || region != "eu-north-1" || token != "session" {
		t.Errorf("signed by %q in %q with the token %q", account, region, token)
	}
	if form := strings.Join(sts.forms, "\n"); len(sts.forms) != 1 || !strings.Contains(form, "WebIdentityToken=a.signed.token") || !strings.Contains(form, "role%2Ftrainer") {
		t.Errorf("the token service was asked %q, want one request with the token and the role", form)
	}

	_, stsURL = serve(t, http.StatusBadRequest, refusal)
	t.Setenv("AWS_ENDPOINT_URL_STS", stsURL)
	_, err = s3blob.New(t.Context(), config.StorePlace{Bucket: "b", Endpoint: bucketURL, PathStyle: true}, 0)
	told(t, "a refused token", err, "InvalidIdentityToken")
	told(t, "a refused token", err, "gives no credentials for the role")
}

// told holds an error to one line of a mistake that names the store and no secret.
func told(t *testing.T, what string, err error, want string) {
	t.Helper()
	if !errors.Is(err, blob.ErrMisconfigured) || strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "signed.token") ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%s: error %v, want one line with %q", what, err, want)
	}
}

// TestSharedProfile: the profile that AWS_PROFILE names brings account, region
// and role; one that is not there is told by its name.
func TestSharedProfile(t *testing.T) {
	dir := bare(t)
	write(t, filepath.Join(dir, "credentials"), "[default]\naws_access_key_id = NOTTHIS\naws_secret_access_key = x\n"+
		"[lab]\naws_access_key_id = LABKEY\naws_secret_access_key = y\n")
	write(t, filepath.Join(dir, "config"), "[profile lab]\nregion = eu-west-3\n"+
		"[profile role]\nrole_arn = arn:aws:iam::1:role/other\nsource_profile = lab\nregion = eu-west-3\n")
	bucket, url := serve(t, http.StatusOK, "")
	sts, stsURL := serve(t, http.StatusOK, strings.ReplaceAll(assumed, "WithWebIdentity", ""))
	t.Setenv("AWS_ENDPOINT_URL_STS", stsURL)
	for profile, want := range map[string]string{"lab": "LABKEY", "role": "ASIAROLE"} {
		t.Setenv("AWS_PROFILE", profile)
		store, err := s3blob.New(t.Context(), config.StorePlace{Bucket: "b", Endpoint: url, PathStyle: true}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Stat(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		if account, region, _ := bucket.signed(t); account != want || region != "eu-west-3" {
			t.Errorf("profile %s: signed by %q in %q, want %q", profile, account, region, want)
		}
	}
	if account, _, _ := sts.signed(t); account != "LABKEY" {
		t.Errorf("the role was asked for by %q, want its source profile", account)
	}
	t.Setenv("AWS_PROFILE", "nobody")
	_, err := s3blob.New(t.Context(), config.StorePlace{Bucket: "b", Endpoint: url, PathStyle: true}, 0)
	told(t, "an unknown profile", err, "nobody")
}

// TestNoAccount: nothing in the environment and no file.
func TestNoAccount(t *testing.T) {
	bare(t)
	_, err := s3blob.New(t.Context(), config.StorePlace{Bucket: "b", Prefix: "p", Region: "us-east-1", Endpoint: "http://127.0.0.1:9"}, 0)
	told(t, "no account", err, "store s3://b/p: no credentials: set AWS_ACCESS_KEY_ID")
}
