package org.apache.hadoop.ozone.container.ozoneimpl;

import org.apache.hadoop.hdfs.util.DataTransferThrottler;

/** Has the name and the field of Ozone's, and is what its thread runs. */
public class BackgroundContainerDataScanner implements Runnable {
    private final DataTransferThrottler throttler;

    public BackgroundContainerDataScanner(DataTransferThrottler throttler) {
        this.throttler = throttler;
    }

    @Override
    public void run() {
        while (throttler != null) {
            try {
                Thread.sleep(1000);
            } catch (InterruptedException e) {
                return;
            }
        }
    }
}
