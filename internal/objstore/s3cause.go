package objstore

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
)

// cause reads the codes of S3. An answer to a HEAD request has none but its status.
func (v *s3Store) cause(err error) error {
	if none := (noCredentials{}); errors.As(err, &none) {
		return refuse("no credentials were found: want AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile in ~/.aws, a role of this machine, or ?anonymous=true")
	}
	if errors.Is(err, errNoListing) {
		return errNoListing
	}
	status, region := 0, ""
	var resp *awshttp.ResponseError
	if errors.As(err, &resp) {
		status = resp.HTTPStatusCode()
		if resp.Response != nil {
			region = resp.Response.Header.Get("X-Amz-Bucket-Region")
		}
	}
	code, message := "", ""
	var api smithy.APIError
	if errors.As(err, &api) {
		code, message = api.ErrorCode(), api.ErrorMessage()
	}
	switch code {
	case "":
		switch status / 100 {
		case 0:
			return nil
		case 2:
			return errors.New("answer ends early, or is none of S3")
		}
	case "NoSuchBucket":
		return refuse("bucket %s does not exist: create it, or check its name, region and endpoint", v.bucket)
	case "InvalidAccessKeyId", "InvalidToken", "ExpiredToken", "SignatureDoesNotMatch":
		return refuse("store does not accept the credentials (%s): check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or the profile", code)
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "MovedPermanently":
		status = http.StatusMovedPermanently
	case "NoSuchUpload":
		return fmt.Errorf("upload is gone: %w", fs.ErrNotExist)
	}
	switch status {
	case http.StatusMovedPermanently:
		if region == "" {
			return refuse("bucket %s is not in region %s: name its region by ?region= or AWS_REGION (%s)", v.bucket, v.region, message)
		}
		return refuse("bucket %s is in region %s, not in %s: name it by ?region=%[2]s or AWS_REGION", v.bucket, region, v.region)
	case http.StatusForbidden, http.StatusUnauthorized:
		return refuse("access is denied: the credentials may not do this in bucket %s, or do not belong to it", v.bucket)
	case http.StatusNotFound:
		if code == "" || code == "NoSuchKey" || code == "NotFound" {
			return fs.ErrNotExist
		}
	case http.StatusPreconditionFailed:
		return errPrecondition
	case http.StatusRequestedRangeNotSatisfiable:
		return &shortError{"it ends before what was asked for"}
	}
	if code == "" {
		return fmt.Errorf("store answered %d", status)
	}
	return fmt.Errorf("store answered %s: %s", code, message)
}
