// Functions without a body need a file like this one in their package.
