"""Every equation of the method as a pure function of tensors: no settings, files, modules or devices."""
