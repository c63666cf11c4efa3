"""Where samples come from: files of records, or a function of the user's. Each gives a sample by its number."""

from __future__ import annotations

from raymx.data.pipeline.samples import SampleSource
from raymx.data.recordio.record_set import RecordSet

Source = RecordSet | SampleSource
