package contract

import (
	"encoding/json"
	"fmt"
	"time"
)

// Purchase is the intent to buy a block. It is recorded on the Service by compare-and-swap before the
// block is bought, because the API has no idempotency key: a later reconciliation finds the block by the nonce in its
// description, or knows how long to wait before buying again.
type Purchase struct {
	// Nonce is part of the block's description.
	Nonce string `json:"nonce"`
	// Time of the intent.
	Time time.Time `json:"time"`
	// BlockID is the ID in the API's answer; empty until an answer is known.
	BlockID string `json:"blockID,omitempty"`
}

// Encode returns the value of the annotation ServiceIPPurchase.
func (p Purchase) Encode() (string, error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("encode annotation %s: %w", ServiceIPPurchase, err)
	}
	return string(raw), nil
}

// ParsePurchase reads the annotation ServiceIPPurchase; nil without an error when it is empty.
func ParsePurchase(raw string) (*Purchase, error) {
	if raw == "" {
		return nil, nil
	}
	var p Purchase
	if err := json.Unmarshal([]byte(raw), &p); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", ServiceIPPurchase, err)
	}
	if p.Nonce == "" || p.Time.IsZero() {
		return nil, fmt.Errorf("annotation %s: nonce or time is missing in %q", ServiceIPPurchase, raw)
	}
	return &p, nil
}
