package org.apache.hadoop.hdfs.util;

/** Has the name, the methods and the monitor of Hadoop's. */
public class DataTransferThrottler {
    private long bytesPerSecond;
    private boolean refuses;

    public DataTransferThrottler(long bytesPerSecond) {
        this.bytesPerSecond = bytesPerSecond;
    }

    public synchronized long getBandwidth() {
        return bytesPerSecond;
    }

    public synchronized void setBandwidth(long bytesPerSecond) {
        if (refuses) {
            throw new IllegalArgumentException("no");
        }
        this.bytesPerSecond = bytesPerSecond;
    }

    public synchronized void refuse(boolean refuses) {
        this.refuses = refuses;
    }
}
