package object

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"temper/internal/blob"
)

// Failure is an answer that is no success.
type Failure struct {
	Status int    // HTTP
	Code   string // of S3, "" where the answer had no body
	Err    error  // of the client library
}

// Error is the answer in a few words.
func (f *Failure) Error() string {
	if f.Code == "" {
		return fmt.Sprintf("the server answers %d %s", f.Status, http.StatusText(f.Status))
	}
	return fmt.Sprintf("the server answers %d %s", f.Status, f.Code)
}

// Unwrap returns the library's error.
func (f *Failure) Unwrap() error { return f.Err }

// ErrCredentials marks that there are no credentials to sign with.
var ErrCredentials = errors.New("no credentials")

// verdict is what an S3 code means to a caller: which kind of error, and what
// the reader of the message is to do.
type verdict struct {
	kind   error
	advice string
}

const (
	adviseCredentials = "credentials are refused: give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role that may use the bucket"
	adviseBucket      = "the bucket does not exist: create it or correct the store's URL"
	adviseRegion      = "the bucket is in another region: set region= in the store's URL"
	adviseClock       = "this machine's clock and the server's differ too much to sign: set the clock"
	adviseFull        = "the server has no space left: free some"
	adviseExpired     = "the session token has expired: renew the credentials"
	adviseDamaged     = "bytes were damaged on the way"
	adviseWait        = "the server is overloaded or down"
	adviseAborted     = "somebody has ended the upload, such as a rule of the bucket for unfinished ones"
)

// verdictOf judges by the codes of S3 and of servers that imitate it.
func verdictOf(code string) (verdict, bool) {
	switch code {
	case "NoSuchBucket":
		return verdict{blob.ErrMisconfigured, adviseBucket}, true
	case "InvalidBucketName":
		return verdict{blob.ErrMisconfigured, "the bucket's name is not valid: correct the store's URL"}, true
	case "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AllAccessDisabled", "AccountProblem", "InvalidToken", "Forbidden", "XAdminUserNotFound":
		return verdict{blob.ErrMisconfigured, adviseCredentials}, true
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException":
		return verdict{blob.ErrMisconfigured, adviseRegion}, true
	case "MethodNotAllowed", "NotImplemented":
		return verdict{blob.ErrMisconfigured, "the server cannot do what the store relies on (docs/stores.md lists it)"}, true
	case "EntityTooLarge":
		return verdict{blob.ErrMisconfigured, "the blob is larger than the server takes: set a smaller part_size= in the store's URL"}, true
	case "ExpiredToken", "TokenRefreshRequired", "RequestExpired":
		return verdict{blob.ErrUnavailable, adviseExpired}, true
	case "RequestTimeTooSkewed":
		return verdict{blob.ErrUnavailable, adviseClock}, true
	case "NoSpaceLeftOnDevice", "XMinioStorageFull", "QuotaExceeded", "XMinioAdminBucketQuotaExceeded":
		return verdict{blob.ErrUnavailable, adviseFull}, true
	case "BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch", "IncompleteBody", "InvalidPart":
		return verdict{blob.ErrUnavailable, adviseDamaged}, true
	case "NoSuchUpload":
		return verdict{blob.ErrUnavailable, adviseAborted}, true
	default:
		return verdict{}, false
	}
}

// statusVerdict judges an answer by its HTTP status where the code says nothing.
func statusVerdict(status int) verdict {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return verdict{blob.ErrMisconfigured, adviseCredentials}
	case status == http.StatusMovedPermanently || status == http.StatusTemporaryRedirect:
		return verdict{blob.ErrMisconfigured, adviseRegion}
	case status == http.StatusInsufficientStorage:
		return verdict{blob.ErrUnavailable, adviseFull}
	case status == http.StatusTooManyRequests || status == http.StatusConflict || status == http.StatusRequestTimeout || status >= http.StatusInternalServerError:
		return verdict{blob.ErrUnavailable, adviseWait}
	default:
		return verdict{blob.ErrMisconfigured, "the server refuses the request"}
	}
}

// Explain turns an error of the API into an error of package blob: a sentinel, one line and
// what to do. It returns an error of the context unchanged.
func (s *Store) Explain(ctx context.Context, op, key string, err error) error {
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("%s %s: %w", op, key, cause)
	}
	var failure *Failure
	switch {
	case explained(err):
		return err
	case errors.Is(err, ErrCredentials):
		return fmt.Errorf("%s %s: %s: %w: %s", op, s.Locate(key), adviseCredentials, blob.ErrMisconfigured, oneLine(err))
	case !errors.As(err, &failure):
		return fmt.Errorf("%s %s: %s: %w", op, s.Locate(key), s.networkAdvice(err), blob.ErrUnavailable)
	case isAbsent(err):
		return fmt.Errorf("%s %s: %w", op, key, blob.ErrNotExist)
	}
	v, ok := verdictOf(failure.Code)
	if !ok {
		v = statusVerdict(failure.Status)
	}
	return fmt.Errorf("%s %s: %s: %w (%w)", op, s.Locate(key), v.advice, v.kind, failure)
}

// explained reports that an error is one of the port's already, or of the caller's writer.
func explained(err error) bool {
	for _, sentinel := range []error{blob.ErrUnavailable, blob.ErrMisconfigured, blob.ErrCorrupt, blob.ErrExists, io.ErrShortWrite} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}

// networkAdvice words an error that is no answer.
func (s *Store) networkAdvice(err error) string {
	var dns *net.DNSError
	var timeout net.Error
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return s.cfg.Place + " speaks plain HTTP, not TLS: correct endpoint= (https://) or tls= in the store's URL, or the server"
	case errors.As(err, &authority):
		return fmt.Sprintf("the certificate of %s is by nobody who is trusted here: name its authority's file by ca= in the store's URL", s.cfg.Place)
	case errors.As(err, &name):
		return fmt.Sprintf("the certificate of %s is not for that host: %s", s.cfg.Place, oneLine(rootOf(err)))
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Sprintf("the host %s is unknown: correct the store's URL or the name service", dns.Name)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("%s makes no progress for %s", s.cfg.Place, s.cfg.stall())
	default:
		return fmt.Sprintf("%s does not answer: %s", s.cfg.Place, oneLine(rootOf(err)))
	}
}

// rootOf is the innermost error, which names the cause without the library's layers.
func rootOf(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// isAbsent reports that a key is not there. A HEAD has no body and so no code.
func isAbsent(err error) bool {
	var f *Failure
	return errors.As(err, &f) && (f.Code == "NoSuchKey" || f.Status == http.StatusNotFound && (f.Code == "" || f.Code == "NotFound"))
}

// refused reports that a condition did not hold.
func refused(err error) bool {
	var f *Failure
	return errors.As(err, &f) && f.Status == http.StatusPreconditionFailed
}

// unclear reports that the write may have happened all the same: no answer, an
// answer that says nothing about the write, or one that a retry of the client
// library got after its first try had done the work.
func unclear(err error) bool {
	var f *Failure
	if !errors.As(err, &f) {
		return true
	}
	return f.Status >= http.StatusInternalServerError || f.Status == http.StatusRequestTimeout ||
		f.Status == http.StatusPreconditionFailed || f.Status == http.StatusConflict || f.Code == "NoSuchUpload"
}
