"""Files of records for people: packing images, verifying, showing, Ray Datasets."""
